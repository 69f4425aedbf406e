/* nccl_one_sided.h: for tests alone: <nccl.h>, and where that is older than 2.29 its one-sided
 * calls, as NCCL 2.29 to 2.32 declare them; so that the emulated NCCL, and
 * runtime/comm/nccl_api.c with it, have them whatever is installed. */
#ifndef PEN_NCCL_ONE_SIDED_H
#define PEN_NCCL_ONE_SIDED_H

#include <nccl.h>

#if NCCL_VERSION_CODE < 22900
#undef NCCL_VERSION_CODE
#define NCCL_VERSION_CODE 23203
#define PEN_NCCL_OLD_CONFIG /* ncclConfig_t stays what it was */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

ncclResult_t ncclPutSignal(const void *from, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int signal, int context,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned int flags, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t *wanted, ncclComm_t comm,
                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

#endif
