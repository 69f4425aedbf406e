/* describe.c: writes the description of GPU 0 that cudnn_engines reads.
 *
 *   describe FILE   exit 77: there is no GPU, or no cuDNN */
#include <stdio.h>

#include "kernels/device.h"

enum { EXIT_SKIPPED = 77 };

#ifdef PEN_HAS_CUDNN
#include "kernels/cuda/attention_cudnn.h"

static const char *describe(char *json, size_t bytes) {
  const char *why = NULL;
  if (pen_cuda.open(0) == NULL) return pen_cuda.error();
  return pen_cudnn_load(&why) == NULL ? why : pen_cudnn_describe(0, json, bytes);
}
#else
static const char *describe(char *json, size_t bytes) {
  (void)json, (void)bytes;
  return "built without the headers of cuDNN and cudnn-frontend";
}
#endif

int main(int argc, char **argv) {
  static char json[4096];
  const char *why = argc == 2 ? describe(json, sizeof json) : "usage: describe FILE";
  if (why != NULL) {
    fprintf(stderr, "describe: %s\n", why);
    return argc == 2 ? EXIT_SKIPPED : 64;
  }
  FILE *file = fopen(argv[1], "w");
  if (file == NULL || fputs(json, file) == EOF || fclose(file) != 0) {
    perror(argv[1]);
    return 1;
  }
  return 0;
}
