// The baselines in a command that was built without a CUDA toolkit.
#include "coda/cli/sm90/baseline.h"
#include "coda/core/error.h"

namespace coda::bench {
namespace {

[[noreturn]] void refuse() { throw Error(Status::unsupported, "bench: this command was built without CUDA"); }

}  // namespace

struct CublasLt::Impl {};
CublasLt::CublasLt(const ConstMatrix&, const ConstMatrix&, Layout, const Matrix&) { refuse(); }
CublasLt::~CublasLt() = default;
void CublasLt::run(void*) const { refuse(); }
void copy(void*, const void*, std::size_t, void*) { refuse(); }
void set_bytes(void*, unsigned char, std::size_t, void*) { refuse(); }

}  // namespace coda::bench
