/* kernels_product_wide.c: our own products for vectors of 64 bytes, made of what the compiler's
 * least instruction set has: the logic that a CPU with AVX-512 runs, where there is none. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define PEN_ISA wide
#define PEN_VECTOR_BYTES 64
#include "kernels/cpu/vector/product.c"
