/* transport_base.h: what the implementations of transport.h share. */
#ifndef PEN_TRANSPORT_BASE_H
#define PEN_TRANSPORT_BASE_H

#include "runtime/comm/transport.h"

/* The transport of a rank alone on an asynchronous device, and of one that tries its actions before
 * it is connected: what is sent goes nowhere, what is waited for is there, and the arenas of others
 * are its own. */
extern const struct pen_transport_ops pen_transport_alone;

/* Calls with nothing to do: the transport has no errors of its own, and each rank may capture. */
void pen_transport_no_call(struct pen_transport *transport);
void pen_transport_no_signal(struct pen_transport *transport, int group);
const char *pen_transport_no_capture_error(struct pen_transport *transport);
bool pen_transport_own_captured(struct pen_transport *transport, bool captured);
const char *pen_transport_no_error(struct pen_transport *transport, uint32_t *peer);

/* Fills *transport except for its ops and actions. */
void pen_transport_fill(struct pen_transport *transport, const struct pen_transport_config *config);

/* Fills transport->actions, except for end_collectives. Allocates. */
void pen_transport_list_actions(struct pen_transport *transport);

/* The process that is a member of one of this one's groups. */
static inline uint32_t pen_transport_process(const struct pen_transport *transport, int group,
                                             uint32_t member) {
  return pen_endpoint_process(transport->endpoint, group, member);
}
static inline uint32_t pen_transport_self(const struct pen_transport *transport) {
  return transport->endpoint->global;
}

/* For calls beside the compute stream: a stream of the transport's own, or the compute stream. */
static inline void *pen_transport_branch(const struct pen_transport *transport, void *own) {
  return transport->serial ? transport->stream : own;
}

static inline const struct pen_message *pen_transport_message(const struct pen_transport *transport,
                                                              uint32_t message) {
  return &transport->profile->messages[message];
}
static inline const struct pen_channel *pen_transport_channel(const struct pen_transport *transport,
                                                              uint32_t message) {
  return &transport->profile->channels[pen_transport_message(transport, message)->channel];
}

/* Whether the global rank reads this one's entries of the step's statistics. UPDATE reads those of
 * all replicas; without it each replica is by itself, and may be any number of steps ahead of the
 * others. */
bool pen_transport_gathers(const struct pen_transport *transport, uint32_t global);

/* The next run of entries from *past on that are the process's own (else: that are others'),
 * [*first, *past). False: no more. A rank's entries are in runs, one or two a stage; those of a
 * tensor rank in one or two a matrix. */
bool pen_transport_entries(const struct pen_transport *transport, bool own, uint32_t *first,
                           uint32_t *past);

#endif
