/* The address of a server, from an option of its command. */
#ifndef ERG_SERVE_SERVE_ADDRESS_H
#define ERG_SERVE_SERVE_ADDRESS_H

#include "ergon/error.h"

#include <netdb.h>
#include <stdbool.h>

/* Resolves "ADDRESS:PORT", an IPv6 address in brackets; errors name the option. Release *found with
 * freeaddrinfo(). */
int erg_serve_resolve(const char *option, const char *listen, struct addrinfo **found,
                      struct erg_error *err);

/* Returns 0 and a listening socket, or errno. The caller reports the error. */
int erg_serve_listen(const struct addrinfo *address, int *opened);

int erg_serve_port(int listener);

/* Returns true if only this machine can reach the address. */
bool erg_serve_is_loopback(const struct addrinfo *address);

#endif
