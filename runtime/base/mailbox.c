/* mailbox.c: the command's side of the mailbox (see mailbox.h). */
#include "runtime/base/mailbox.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"

enum { WORDS = 2 /* serve FD */ };

static int descriptor = -1;

/* Options that only print end the command, for which a library would wait. */
static void refuse_printing(char *const *words) {
  static const char *const printing[] = {"--help", "-h", "--version", "-V"};
  for (; *words != NULL; words++) {
    for (size_t i = 0; i < sizeof printing / sizeof *printing; i++) {
      if (strcmp(*words, printing[i]) == 0) {
        pen_fail(PEN_EXIT_USAGE, "%s: not with a library", *words);
      }
    }
  }
}

struct pen_mailbox *pen_mailbox_take(int *argc, char ***argv) {
  char **words = *argv, *end;
  struct stat status;
  if (*argc < 1 + WORDS || strcmp(words[1], "serve") != 0) {
    return NULL;
  }
  descriptor = (int)strtol(words[2], &end, 10);
  if (*end != '\0' || fstat(descriptor, &status) != 0 ||
      status.st_size != (off_t)sizeof(struct pen_mailbox)) {
    pen_fail(PEN_EXIT_USAGE, "serve %s: the library of this binary calls it; see penstock.h",
             words[2]);
  }
  struct pen_mailbox *mailbox =
      mmap(NULL, sizeof *mailbox, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  pen_check(mailbox != MAP_FAILED, "cannot map the mailbox");
  if (mailbox->version != PEN_MAILBOX_VERSION) {
    pen_fail(PEN_EXIT_DATA, "the library is of another version than %s", words[0]);
  }
  pen_check(fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0, "cannot keep the mailbox to this process");
  pen_check_write_to(mailbox->message);
  refuse_printing(words + 1 + WORDS);
  words[WORDS] = words[0];
  *argc -= WORDS;
  *argv += WORDS;
  return mailbox;
}

unsigned char *pen_mailbox_lengthen(struct pen_mailbox *mailbox, uint64_t bytes) {
  pen_check(ftruncate(descriptor, (off_t)bytes) == 0, "cannot make %llu bytes of shared memory",
            (unsigned long long)bytes);
  unsigned char *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  pen_check(all != MAP_FAILED, "cannot map %llu bytes of shared memory", (unsigned long long)bytes);
  mailbox->bytes = bytes;
  return all;
}

void pen_mailbox_answer(struct pen_mailbox *mailbox) {
  if ((atomic_fetch_add(&mailbox->done, 1) + 1) % mailbox->rank_count == 0) {
    pen_futex_counter_increment(&mailbox->answers);
  }
}
