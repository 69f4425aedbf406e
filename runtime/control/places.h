/* places.h: where each command listens for copies in memory (mirror.h): it tells the server
 * (PLACE), which tells all of them the places of all hosts (PLACES) when these have come. */
#ifndef PEN_PLACES_H
#define PEN_PLACES_H

#include "runtime/control/rendezvous.h"

/* The address of this command: where the server listens; elsewhere where the link to the server
 * comes from, unless the plan names an interface. */
void pen_place_set_listen_address(const struct pen_control_config *config, struct pen_peers *peers);
void pen_place_set_address(const struct pen_control_config *config,
                           const struct pen_control_link *link, char address[PEN_ADDRESS_BYTES]);

/* Begins to listen for copies, if there are any, and returns where; and ends it. */
struct pen_place pen_place_open(const struct pen_control_config *config, struct pen_peers *peers,
                                const char *address);
void pen_place_close(struct pen_peers *peers);

/* Notes the place of its host. With a command a rank, those of a host share its place, which nobody
 * uses. */
void pen_place_set(struct pen_membership *membership, const struct pen_place *place);

/* To the server. False, with errno: the connection is broken; as the next two. */
bool pen_place_send(struct pen_control_link *link, const struct pen_place *place);
/* Waits until the server says something, to `end_ns` at most (EAGAIN); then takes what it says,
 * with the plan. */
bool pen_places_await(const struct pen_control_config *config, const struct pen_control_link *link,
                      uint32_t server, uint64_t end_ns);
bool pen_places_receive(const struct pen_control_config *config, struct pen_control_link *link);

/* From the server; does not wait. */
void pen_places_send(const struct pen_control_config *config, struct pen_peer_command *peer);

#endif
