#include <gtest/gtest.h>

#include "tests/support/guarded.h"

namespace coda::test {

void expect_none(const std::string& failure) { EXPECT_EQ(failure, ""); }

}  // namespace coda::test
