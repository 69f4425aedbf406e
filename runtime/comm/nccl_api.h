/* nccl_api.h: the calls of NVIDIA's NCCL that the transport nccl makes, as a table, so that tests
 * can replace them (tests/emulation/mock_device.c). nccl_api.c has the library's own, in binaries
 * whose plan uses NCCL.
 *
 * The first error is kept: error(). A communicator is a void pointer, shared by the ranks that made
 * it together. Sends and receives are enqueued on a stream, and match in the order in which both
 * sides enqueue them (NCCL User Guide, "Point-to-point communication"). */
#ifndef PEN_NCCL_API_H
#define PEN_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

enum { PEN_NCCL_ID_BYTES = 128 };

struct pen_nccl_calls {
  int (*version)(void); /* of the library found at run time: 22809 is 2.28.9 */
  /* The id that all ranks of open() must have: one rank makes it and distributes it. */
  void (*make_id)(unsigned char id[PEN_NCCL_ID_BYTES]);
  /* Blocks until all ranks have called it. The communicator of all of them; null: see error(). */
  void *(*open)(const unsigned char id[PEN_NCCL_ID_BYTES], int rank_count, int rank);
  /* Blocks until all ranks of `all` have called it. The ranks of one color form a communicator, in
   * the order of their keys; color -1: none, null. Its kernels use at most `blocks` CTAs, a power
   * of two; 0: as the library chooses. */
  void *(*split)(void *all, int color, int key, int blocks);
  /* Device memory that can be registered; null: see error(). */
  void *(*allocate)(size_t bytes);
  /* Registers device memory that messages are read from and written to. The library connects it to
   * a peer at its first use with that peer, which allocates, and so must be before a capture (NCCL
   * User Guide, "User Buffer Registration"). If that fails, messages use the library's buffers. */
  void (*register_buffer)(void *communicator, void *memory, size_t bytes);
  void (*send)(void *communicator, const void *from, size_t bytes, int to, void *stream);
  void (*receive)(void *communicator, void *to, size_t bytes, int from, void *stream);
  /* Sends and receives between the two, of one communicator and on one stream, run together, in any
   * order. */
  void (*group_begin)(void);
  void (*group_end)(void);
  /* One-sided calls (NCCL User Guide, "One-Sided Point-to-Point Operations") of NCCL 2.29 and
   * later; all null if this was compiled with an older nccl.h, and not to be called with an older
   * library. window(): blocks until all ranks of the communicator have called it; returns the
   * window through which they write to that memory, which must be of allocate(), and from which
   * they read what they send; null if the library has none for them. The first one-sided call may
   * still fail, for instance over a network without remote writes. */
  void *(*window)(void *communicator, void *memory, size_t bytes);
  /* Writes to a rank's window at that offset, then raises this rank's signal there by one. Complete
   * on the stream when `from` has been read. In a graph the next put waits until the other rank has
   * waited for the previous one. */
  void (*put)(void *communicator, const void *from, size_t bytes, int to, void *window,
              size_t offset, void *stream);
  void (*signal)(void *communicator, int to, void *stream); /* raises the signal alone */
  /* Waits for the next signal of that rank; its earlier writes have arrived. */
  void (*wait_signal)(void *communicator, int from, void *stream);

  /* All-reduce (sum) of f64 in device memory, in place. */
  void (*sum)(void *communicator, double *memory, size_t count, void *stream);
  /* The same in host memory; blocks. Before the seal. */
  void (*sum_host)(void *communicator, double *memory, size_t count, void *stream);
  /* Device memory used since the first open(), and by how much allocate() has rounded up. */
  uint64_t (*memory_bytes)(void);
  const char *(*error)(void);       /* of the calls above, as text; null: none */
  const char *(*clear_error)(void); /* the same, and clears it, after a failed capture; static */
  /* The asynchronous error of a communicator, as text; null: none. Does not block. */
  const char *(*async_error)(void *communicator);
  void (*abort)(void *communicator); /* ends all calls that wait for other ranks */
};

extern const struct pen_nccl_calls pen_nccl; /* only in libnccl_calls.a */

#endif
