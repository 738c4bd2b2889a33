/* The token that each request to ergon serve has to bring, with --token. */
#ifndef ERG_SERVE_SERVE_TOKEN_H
#define ERG_SERVE_SERVE_TOKEN_H

#include "ergon/error.h"

#include <microhttpd.h>
#include <stdbool.h>

/* The first line of a file, to be freed: a token on the command line could be read by everybody. */
int erg_serve_read_token(const char *path, char **token, struct erg_error *err);

/* "Bearer TOKEN", or the token as the password of "Basic", which clients take from a URL. */
bool erg_serve_brings_token(struct MHD_Connection *connection, const char *token);

#endif
