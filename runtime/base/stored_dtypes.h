/* stored_dtypes.h: the dtypes of safetensors files, and of samples that a program gives. */
#ifndef PEN_STORED_DTYPES_H
#define PEN_STORED_DTYPES_H

#include <stdint.h>

/* The dtypes of the format: row(NAME, bytes of an element, how it is read as an id). Weights may
 * have the first three; a file may hold tensors of the others too. */
#define PEN_STORED_DTYPE_LIST(row)                                                               \
  row(F32, 4, NULL) row(BF16, 2, NULL) row(F16, 2, NULL) row(BOOL, 1, NULL) row(U8, 1, id_u8)    \
      row(I8, 1, NULL) row(U16, 2, NULL) row(I16, 2, NULL) row(U32, 4, NULL) row(I32, 4, id_i32) \
          row(U64, 8, NULL) row(I64, 8, id_i64) row(F64, 8, NULL) row(F8_E4M3, 1, NULL)          \
              row(F8_E5M2, 1, NULL)
enum pen_stored_dtype_index {
#define PEN_STORED_DTYPE(name, bytes, id) PEN_STORED_##name,
  PEN_STORED_DTYPE_LIST(PEN_STORED_DTYPE)
#undef PEN_STORED_DTYPE
      PEN_STORED_DTYPES
};
struct pen_stored_dtype {
  const char *name;
  unsigned bytes; /* of an element */
  /* Reads an element, which need not be aligned, as an id; null: it is none. */
  int64_t (*id)(const unsigned char *from);
};
extern const struct pen_stored_dtype pen_stored_dtypes[PEN_STORED_DTYPES];

#endif
