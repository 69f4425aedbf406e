/* text_writer.h: text output and the form of printed bytes. Nothing here calls an allocator, so all
 * may run after pen_seal(). */
#ifndef PEN_TEXT_WRITER_H
#define PEN_TEXT_WRITER_H

#include <stddef.h>
#include <stdint.h>

/* Writes 2*count lower-case hexadecimal digits and a 0 into text. */
void pen_hex_text(char *text, const unsigned char *bytes, size_t count);

/* Writes a number so that it reads back exactly, in fewer than PEN_JSON_NUMBER_BYTES; what is not
 * finite as `null`. Returns the bytes written. */
enum { PEN_JSON_NUMBER_BYTES = 32 };
int pen_json_number(char *text, size_t bytes, double value);

/* The same with so many significant digits, where `null` means that there is no number: what is not
 * finite as the string "nan", "inf" or "-inf". */
int pen_json_any_number(char *text, size_t bytes, int digits, double value);

/* A mean over `count` values as pen_json_number() writes it; of none, `null`. */
int pen_json_mean(char *text, size_t bytes, uint64_t count, double value);

/* A file that is written sequentially. After an error `failed` holds its errno and further output
 * is dropped; pen_writer_flush() reports it. */
struct pen_writer {
  int fd, failed;
  size_t used;
  char buffer[4096];
};
void pen_writer_open(struct pen_writer *text, int fd);
void pen_writer_text(struct pen_writer *text, const char *string);
/* Writes as printf(), fewer than PEN_WRITER_PRINT_BYTES. */
enum { PEN_WRITER_PRINT_BYTES = 512 };
void pen_writer_print(struct pen_writer *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pen_writer_json(struct pen_writer *text, const char *string); /* quoted and escaped */
int pen_writer_flush(struct pen_writer *text);                     /* 0, or -1 with errno set */

#endif
