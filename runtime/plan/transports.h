/* transports.h: the devices and transports of transports.def, and what each can do. */
#ifndef PEN_TRANSPORTS_H
#define PEN_TRANSPORTS_H

#include <stdbool.h>
#include <stdint.h>

enum pen_device_kind {
#define PEN_DEVICE(name, text, on_host, meaning) PEN_DEVICE_##name,
#include "runtime/plan/transports.def"
  PEN_DEVICES
};

enum pen_transport_kind {
#define PEN_TRANSPORT(name, ...) PEN_TRANSPORT_##name,
#include "runtime/plan/transports.def"
  PEN_TRANSPORTS
};

/* One row each of transports.def. */
struct pen_device_row {
  const char *text;
  bool on_host;
};
struct pen_transport_row {
  const char *text;
  uint8_t device;
  bool between_hosts;
  uint8_t within, between;
  bool reads_peers, sender_copies, two_sided;
};

static inline const struct pen_device_row *pen_device_row(int device) {
  static const struct pen_device_row rows[PEN_DEVICES] = {
#define PEN_DEVICE(name, text, on_host, meaning) {text, on_host},
#include "runtime/plan/transports.def"
  };
  return &rows[device];
}

static inline const struct pen_transport_row *pen_transport_row(int transport) {
  static const struct pen_transport_row rows[PEN_TRANSPORTS] = {
#define PEN_TRANSPORT(name, text, device, between_hosts, within, between, reads_peers, \
                      sender_copies, two_sided, meaning)                               \
  {                                                                                    \
      text,                                                                            \
      PEN_DEVICE_##device,                                                             \
      between_hosts,                                                                   \
      PEN_TRANSPORT_##within,                                                          \
      PEN_TRANSPORT_##between,                                                         \
      reads_peers,                                                                     \
      sender_copies,                                                                   \
      two_sided},
#include "runtime/plan/transports.def"
  };
  return &rows[transport];
}

/* The first transport of a device that reaches other hosts, or none. */
static inline enum pen_transport_kind pen_transport_for(int device, bool hosts) {
  int transport = 0;
  while (pen_transport_row(transport)->device != device ||
         pen_transport_row(transport)->between_hosts != hosts)
    transport++;
  return (enum pen_transport_kind)transport;
}

#endif
