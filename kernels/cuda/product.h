/* product.h: what a measurement of matrix products asks of product.c: other algorithms than the one
 * that a prepared product has. Training does not include this header. */
#ifndef PEN_CUDA_PRODUCT_H
#define PEN_CUDA_PRODUCT_H

#include <cublasLt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first algorithms that the library's heuristic has for a prepared product, by its rank, at
 * most `most`; the first is what pen_cuda_product_prepare() takes. Returns how many; 0: see
 * pen_cuda.error(), unless it has none. */
int pen_cuda_product_algorithms(const void *prepared, cublasLtMatmulHeuristicResult_t *results,
                                int most);
/* From here on the product is computed with this one of them. */
void pen_cuda_product_use(void *prepared, const cublasLtMatmulAlgo_t *algorithm);

#ifdef __cplusplus
}
#endif

#endif
