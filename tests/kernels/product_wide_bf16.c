/* product_wide_bf16.c: bf16 products by pairs, compiled for the baseline instruction set: tests the
 * code for CPUs with AVX512_BF16 on any CPU. */
#pragma GCC diagnostic ignored "-Wpsabi"
#ifndef __clang__
#pragma GCC optimize "Og" /* -O2 takes a minute, since no register holds such a vector */
#endif
#define PEN_ISA wide
#define PEN_STORED_BF16
#define PEN_VECTOR_BYTES 64
#include "kernels/cpu/vector/product_pairs.c"
