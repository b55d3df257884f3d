// The one table of what CODA computes: `coda programs` prints it, `coda verify` and `coda bench` run it.
#pragma once

#include <string>
#include <vector>

#include "coda/core/tensor.h"

namespace coda::cli {

class VerifyCase;
class BenchCase;

/// A port of a program, or an argument of an operation that is none.
struct PortInfo {
  std::string name;
  std::string kind;   // of the port, as derived from its C++ type
  std::string dtype;  // "T": of the operands; "S": of statistics, fp32, or fp64 where T is fp64
  std::string shape;
  bool optional = false;
};

struct Entry {
  std::string name;
  std::string call;     // the checked function in coda/ops/ops.h
  std::string formula;  // acc is the product of the operands
  std::vector<PortInfo> ports;
  bool product = true;                  // there are operands a and b, in any layout of `layouts`
  Layout layout = Layout::nt;           // the one that it is for
  bool any_layout = true;               // else only `layout`
  void (*verify)(VerifyCase&);          // runs it and compares each output with fp64
  void (*bench)(BenchCase&) = nullptr;  // null: it has no bare product to be compared with
};

const std::vector<Entry>& catalog();
/// Null if there is no entry of this name.
const Entry* find_entry(const std::string& name);

}  // namespace coda::cli
