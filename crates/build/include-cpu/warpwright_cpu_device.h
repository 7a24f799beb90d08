// Included after torch's headers and before a candidate's own text on the cpu device, where 'cuda'
// means the host: the same binding compiles, checks and runs there. Macros reach every spelling a
// binding uses, and nothing in torch's headers, which are complete by now.
#pragma once

#include <cuda_runtime.h>

#define is_cuda() is_cpu()
#define cuda() cpu()
#define kCUDA kCPU
#define CUDA CPU
