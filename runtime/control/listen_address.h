/* listen_address.h: at which address of this host the others reach it. */
#ifndef PEN_LISTEN_ADDRESS_H
#define PEN_LISTEN_ADDRESS_H

#include <sys/socket.h>

#include "runtime/control/membership.h"

/* The address at which a host listens, this one: that of cluster.interface, else the one that its
 * name resolves to. Fails (64) where the plan has several hosts and the address is a loopback one,
 * unless cluster.interface names it and no other host is known to be elsewhere; where there is no
 * such interface; and where the name cannot be resolved. */
struct sockaddr_storage pen_listen_address(const struct pen_plan *plan, uint32_t host);

/* The address that such a text names; address family 0: none. */
struct sockaddr_storage pen_address_of_text(const char *text);

/* The address as text, without a port. */
void pen_address_text(const struct sockaddr_storage *address, char *text, size_t bytes);

/* Where the ranks of the current plan listen for messages. `address` is where this command listens:
 * it changes where a fallback has another interface for them. Fails (64) as above. */
void pen_message_address(const struct pen_membership *membership, char address[PEN_ADDRESS_BYTES]);

#endif
