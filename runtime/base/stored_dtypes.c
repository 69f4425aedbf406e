/* stored_dtypes.c: what the dtypes of safetensors files are (see stored_dtypes.h). */
#include "runtime/base/stored_dtypes.h"

#include <string.h>

static int64_t id_i32(const unsigned char *from) {
  int32_t id;
  memcpy(&id, from, sizeof id);
  return id;
}

static int64_t id_i64(const unsigned char *from) {
  int64_t id;
  memcpy(&id, from, sizeof id);
  return id;
}

static int64_t id_u8(const unsigned char *from) { return *from; }

const struct pen_stored_dtype pen_stored_dtypes[PEN_STORED_DTYPES] = {
#define PEN_STORED_DTYPE(name, bytes, id) {#name, bytes, id},
    PEN_STORED_DTYPE_LIST(PEN_STORED_DTYPE)
#undef PEN_STORED_DTYPE
};
