/* The address at which a server listens, as an option of its command names it. */
#ifndef ERG_SERVE_SERVE_ADDRESS_H
#define ERG_SERVE_SERVE_ADDRESS_H

#include "ergon/error.h"

#include <netdb.h>
#include <stdbool.h>

/* "ADDRESS:PORT", an IPv6 address in brackets, as this option got it. *found is to be given to
 * freeaddrinfo(). */
int erg_serve_resolve(const char *option, const char *listen, struct addrinfo **found,
                      struct erg_error *err);

/* 0 and a socket that listens, or errno: the server itself does not say why it could not. */
int erg_serve_listen(const struct addrinfo *address, int *opened);

int erg_serve_port(int listener);

/* Whether only this machine reaches it. */
bool erg_serve_is_loopback(const struct addrinfo *address);

#endif
