/* The token in each request to ergon serve, with --token. */
#ifndef ERG_SERVE_SERVE_TOKEN_H
#define ERG_SERVE_SERVE_TOKEN_H

#include "ergon/error.h"

#include <microhttpd.h>
#include <stdbool.h>

/* Reads the first line of a file; free it. A token on the command line would be visible to all
 * users. */
int erg_serve_read_token(const char *path, char **token, struct erg_error *err);

/* Accepts "Bearer TOKEN", or the token as the password of "Basic", which clients take from a
 * URL. */
bool erg_serve_brings_token(struct MHD_Connection *connection, const char *token);

#endif
