// What the programs beside this header share. They pass host memory to kernels, which only the cpu
// device allows, and say where a value is not what a GPU gives.
#pragma once
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>

static int failures = 0;
#define CHECK(i, got, want)                                                                         \
    do {                                                                                            \
        const auto hold_got = (got);                                                                \
        const decltype(hold_got) hold_want = (decltype(hold_got))(want);                            \
        if (memcmp(&hold_got, &hold_want, sizeof(hold_got)) != 0 && ++failures < 20)                \
            printf("line %d, i = %lld: %.17g instead of %.17g\n", __LINE__, (long long)(i),         \
                   (double)hold_got, (double)hold_want);                                            \
    } while (0)
