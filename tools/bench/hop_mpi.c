/* hop_mpi.c: as hop.c, by an MPI library, with persistent requests; the receive is always posted
 * first. For mpicc; two ranks. */
#define _GNU_SOURCE
#include <mpi.h>
#include <string.h>

#include "tools/bench/hop_sizes.h"

static unsigned char in[16 << 20] __attribute__((aligned(4096)));
static unsigned char out[16 << 20] __attribute__((aligned(4096)));

static void make_round(int rank, uint64_t bytes, MPI_Request *receive, MPI_Request *send) {
  if (rank == 0) {
    MPI_Start(receive);
    MPI_Start(send);
    MPI_Wait(receive, MPI_STATUS_IGNORE);
    hop_read(in, bytes);
  } else {
    MPI_Wait(receive, MPI_STATUS_IGNORE);
    hop_read(in, bytes);
    MPI_Start(receive);
    MPI_Start(send);
  }
  MPI_Wait(send, MPI_STATUS_IGNORE);
}

static void measure(int rank, uint64_t bytes) {
  static uint64_t times_ns[HOP_ROUNDS_MAX];
  const uint64_t rounds = hop_rounds(bytes), warm = rounds / 4;
  MPI_Request receive, send;
  MPI_Recv_init(in, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &receive);
  MPI_Send_init(out, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &send);
  if (rank == 1) {
    MPI_Start(&receive);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (uint64_t k = 0; k < rounds + warm; k++) {
    const double start_s = MPI_Wtime();
    make_round(rank, bytes, &receive, &send);
    if (k >= warm) {
      times_ns[k - warm] = (uint64_t)((MPI_Wtime() - start_s) * 1e9);
    }
  }
  if (rank == 1) { /* the receive that was posted after the last round */
    MPI_Cancel(&receive);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  } else {
    hop_print(bytes, hop_median_ns(times_ns, rounds));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Request_free(&receive);
  MPI_Request_free(&send);
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  hop_pin(rank);
  memset(out, 1, sizeof out); /* else all its pages are the one that is zero */
  for (uint64_t bytes = HOP_BYTES_MIN; bytes <= HOP_BYTES_MAX; bytes *= 2) {
    measure(rank, bytes);
  }
  MPI_Finalize();
  return 0;
}
