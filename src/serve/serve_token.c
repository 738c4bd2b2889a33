/* The token of ergon serve: reads it from a file, and compares it with that of a request. */
#include "serve/serve_token.h"

#include "io/file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/="
enum { SHORTEST = 16, LONGEST = 1024 };

int erg_serve_read_token(const char *path, char **token, struct erg_error *err)
{
    char *text;
    if (erg_file_read(path, LONGEST, &text, NULL, err) != 0)
        return -1;
    text[strcspn(text, "\r\n")] = '\0';
    const size_t count = strlen(text);
    if (count < SHORTEST || strspn(text, LETTERS) != count) {
        free(text);
        return erg_fail(err, ERG_FAILED,
                        "reading the token in '%s': expected at least %d letters, digits and "
                        "\"-._~+/=\" in the first line",
                        path, SHORTEST);
    }
    *token = text;
    return 0;
}

/* Takes a time that does not depend on where they differ. */
static bool are_equal(const char *a, const char *b)
{
    const size_t count = strlen(a);
    unsigned differ = strlen(b) != count;
    for (size_t i = 0; i < count; i++)
        differ |= (unsigned)(a[i] ^ b[differ ? 0 : i]);
    return !differ;
}

bool erg_serve_brings_token(struct MHD_Connection *connection, const char *token)
{
    const char *header =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    char *password = NULL;
    if (!header)
        return false;
    if (strncasecmp(header, "Bearer ", 7) == 0)
        return are_equal(token, header + 7 + strspn(header + 7, " "));
    char *user = MHD_basic_auth_get_username_password(connection, &password);
    const bool brings = user && password && are_equal(token, password);
    MHD_free(user);
    MHD_free(password);
    return brings;
}
