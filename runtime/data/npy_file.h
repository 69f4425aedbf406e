/* npy_file.h: token ids in a NumPy array, as numpy.save() writes it (NumPy's NEP 1): the magic, a
 * version, the length of a header in the syntax of a Python dict, the header, then the numbers. */
#ifndef PEN_NPY_FILE_H
#define PEN_NPY_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* Where an array's numbers are. */
struct pen_npy {
  const unsigned char *numbers; /* little-endian, as they follow each other */
  uint64_t count;
  uint32_t number_bytes; /* 2 or 4 */
};

/* Whether the file, of at least 8 bytes, begins as an array does. */
bool pen_npy_begins(const unsigned char *file);

/* Reads the header. Fails (65) unless the array has one dimension, numbers of type <u2 or <u4, and
 * as many bytes as they take. `file` stays the caller's. */
struct pen_npy pen_npy_read(const char *path, const unsigned char *file, uint64_t file_bytes);

#endif
