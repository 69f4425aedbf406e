/* hop_mpi.c: our messages beside an MPI library's, alternately between the same two processes on
 * the same cores. The library's are persistent requests, whose receive is always posted first. Both
 * sides send the same bytes again and again from one buffer to another one, and read every cache
 * line of what comes.
 *
 *   hop_mpi shm FILE TURNS
 *   hop_mpi ofi FILE TURNS ADDRESS ADDRESS
 *
 * For mpicc and two ranks. FILE, which must not exist, is memory that both ranks map: in a tmpfs
 * for shm. ADDRESS: of each rank's host. Prints a line for each size, side and turn. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "tools/bench/hop.h"

static unsigned char in[16 << 20] __attribute__((aligned(4096)));
static unsigned char out[16 << 20] __attribute__((aligned(4096)));
static uint64_t times_ns[HOP_ROUNDS_MAX];
static struct pen_two_ranks two;

/* ---- the library's side ---- */

static void make_round(int rank, uint64_t bytes, MPI_Request *receive, MPI_Request *send) {
  if (rank == 0) {
    MPI_Start(receive);
    MPI_Start(send);
    MPI_Wait(receive, MPI_STATUS_IGNORE);
    pen_timed_read(in, bytes);
  } else {
    MPI_Wait(receive, MPI_STATUS_IGNORE);
    pen_timed_read(in, bytes);
    MPI_Start(receive);
    MPI_Start(send);
  }
  MPI_Wait(send, MPI_STATUS_IGNORE);
}

static void measure_mpi(int rank, uint64_t bytes) {
  const uint64_t rounds = hop_rounds(bytes), warm = hop_warm_rounds(bytes);
  MPI_Request receive, send;
  MPI_Recv_init(in, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &receive);
  MPI_Send_init(out, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &send);
  if (rank == 1) {
    MPI_Start(&receive);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (uint64_t k = 0; k < rounds + warm; k++) {
    const uint64_t start_ns = pen_now_ns();
    make_round(rank, bytes, &receive, &send);
    if (k >= warm) {
      times_ns[k - warm] = pen_now_ns() - start_ns;
    }
  }
  if (rank == 1) { /* the receive that was posted after the last round */
    MPI_Cancel(&receive);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  } else {
    hop_print("mpi", bytes, times_ns, rounds);
  }
  MPI_Request_free(&receive);
  MPI_Request_free(&send);
}

/* ---- our side ---- */

/* Rank 0 makes the file, and both map its start in place of their own memory. Over ofi the arenas
 * stay the processes' own. */
static void share_memory(const char *file, int rank) {
  const size_t bytes = two.plan.transport == PEN_TRANSPORT_SHM
                           ? two.shared.bytes
                           : two.shared.receive_region_offset[0];
  int descriptor = -1;
  if (rank == 0) {
    descriptor = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    pen_check(descriptor >= 0 && ftruncate(descriptor, (off_t)bytes) == 0, "cannot make %s", file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    descriptor = open(file, O_RDWR | O_CLOEXEC);
    pen_check(descriptor >= 0, "cannot open %s", file);
  }
  void *mapped =
      mmap(two.shared.memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
  pen_check(mapped != MAP_FAILED, "cannot map %s", file);
  close(descriptor);
  two.shared.control->spin_ns = PEN_TIMED_SPIN_NS;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    unlink(file);
  }
}

static void measure_ours(struct pen_transport *end, int rank, uint64_t bytes) {
  const uint64_t rounds = hop_rounds(bytes), warm = hop_warm_rounds(bytes);
  pen_two_ranks_set_bytes(&two, bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  hop_run(end, warm, rounds, bytes, times_ns);
  if (rank == 0) {
    hop_print("ours", bytes, times_ns, rounds);
  }
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  pen_check(argc == 4 || argc == 6, "TRANSPORT FILE TURNS [ADDRESS ADDRESS]");
  hop_pin(rank);
  memset(out, 1, sizeof out); /* else all its pages are the one that is zero */
  pen_two_ranks_make(&two, strcmp(argv[1], "shm") == 0 ? PEN_TRANSPORT_SHM : PEN_TRANSPORT_OFI,
                     HOP_BYTES_MAX);
  pen_timed_shared_open(&two.shared, &two.plan);
  share_memory(argv[2], rank);
  if (argc == 6) {
    snprintf(two.shared.address, sizeof two.shared.address, "%s", argv[4 + rank]);
  }
  struct pen_endpoint endpoint;
  struct pen_transport *end = hop_open_end(&two, &endpoint, (uint32_t)rank);
  for (int turn = 0; turn < atoi(argv[3]); turn++) {
    for (uint64_t bytes = HOP_BYTES_MIN; bytes <= HOP_BYTES_MAX; bytes *= 2) {
      if (turn % 2 == 0) {
        measure_ours(end, rank, bytes);
      }
      measure_mpi(rank, bytes);
      if (turn % 2 == 1) {
        measure_ours(end, rank, bytes);
      }
    }
  }
  if (rank == 0) {
    printf("end\n");
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
