// expect: coda: the slot of a HeadMean is 0 or 1
#include "coda/backend/cpu/gemm.h"

int main() { coda::HeadMean<float, 2> mean; }
