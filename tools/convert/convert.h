/* convert.h: penstock-convert writes a topology from the config.json of a model of Hugging Face's
 * transformers. convert.c reads the config (base/model_config.h) and the command
 * line and writes the topology; message.c prints errors and warnings. */
#ifndef PEN_CONVERT_H
#define PEN_CONVERT_H

/* Ends the program: "penstock-convert: " and the message on a line of standard error. */
_Noreturn void convert_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void convert_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void convert_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
