/* nccl_api.h: the calls of NVIDIA's NCCL that the link nccl.c makes, as a table, so that a
 * rehearsal can stand in their place (tests/emulation/mock_device.c). nccl_calls.c has the
 * library's own, in a binary whose plan wants them.
 *
 * What fails is kept, the first alone: error(). A communicator is a void pointer, of the ranks that
 * made it together. Sends and receives are put on a stream and match in the order in which both
 * sides put them there (NCCL User Guide, "Point-to-point communication"). */
#ifndef PEN_NCCL_API_H
#define PEN_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

enum { PEN_NCCL_ID_BYTES = 128 };

struct pen_nccl_calls {
  int (*version)(void); /* of the library found at run time: 22809 is 2.28.9 */
  /* What all ranks of open() must have: one makes it, and hands it out. */
  void (*make_id)(unsigned char id[PEN_NCCL_ID_BYTES]);
  /* Blocks until all ranks have called it. The communicator of all of them; null: see error(). */
  void *(*open)(const unsigned char id[PEN_NCCL_ID_BYTES], int rank_count, int rank);
  /* Blocks until all ranks of `all` have called it. Those of one colour are a communicator, in the
   * order of their keys; colour -1: none, null. Its kernels take at most `blocks` of the GPU's
   * processors, a power of two; 0: as many as the library likes. */
  void *(*split)(void *all, int colour, int key, int blocks);
  /* Memory of the device that can be registered, as messages want it; null: see error(). */
  void *(*allocate)(size_t bytes);
  /* Registers memory that messages come from and go to. Whom they are exchanged with is told when
   * such memory is first used with them, and that is to be before a capture: the two sides talk
   * over it, and allocate (NCCL User Guide, "User Buffer Registration"). Where that fails, messages
   * go through the library's buffers. */
  void (*enroll)(void *communicator, void *there, size_t bytes);
  void (*send)(void *communicator, const void *from, size_t bytes, int to, void *stream);
  void (*receive)(void *communicator, void *to, size_t bytes, int from, void *stream);
  /* Sends and receives between the two, of one communicator and on one stream, go at once, in
   * whatever order they come. */
  void (*group_begin)(void);
  void (*group_end)(void);
  /* One-sided calls (NCCL User Guide, "One-Sided Point-to-Point Operations"), of NCCL 2.29 and
   * later; all null where this was compiled with an older nccl.h, and not to be called with an
   * older library. Blocks until all ranks of the communicator have called it: the window through
   * which they may write to that memory, of allocate(), and take from it what they write; null
   * where the library has none for them. That there is one does not say that its calls go: the
   * first may be refused, as over a network that does not do them. */
  void *(*window)(void *communicator, void *there, size_t bytes);
  /* Writes to a rank's window, at that offset; then raises its signals from this rank by one. Done
   * on the stream when `from` is read. In a graph, the next waits until the rank's wait for the one
   * before is done. */
  void (*put)(void *communicator, const void *from, size_t bytes, int to, void *window,
              size_t offset, void *stream);
  void (*signal)(void *communicator, int to, void *stream); /* raises its signals alone */
  void (*await)(
      void *communicator, int from,
      void *stream); /* waits for the next signal from that rank; what it wrote before is there */

  void (*sum)(void *communicator, double *there, size_t count,
              void *stream); /* every rank's added, element by element, in place */
  void (*total)(void *communicator, double *here, size_t count,
                void *stream);    /* the same of memory here; blocks. Before the seal */
  uint64_t (*memory_bytes)(void); /* of the device that are gone since the first open(), and by
                                     which allocate() has rounded up */
  const char *(*error)(void);     /* of the calls above, in words; null: none */
  const char *(*forget)(void);    /* the same, and from then on it is forgotten: of a capture that
                                     failed. Static storage */
  const char *(*trouble)(
      void *communicator);           /* that shows later, in words; null: none. Does not wait */
  void (*abort)(void *communicator); /* lets go of what waits for others, wherever they are */
};

extern const struct pen_nccl_calls pen_nccl; /* in libnccl_calls.a alone */

#endif
