/* Errors: formats messages, and puts a context before them. */
#include "ergon/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int erg_fail(struct erg_error *err, enum erg_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        err->status = status;
    }
    return -1;
}

int erg_fail_context(struct erg_error *err, const char *format, ...)
{
    if (err) {
        char message[sizeof err->message];
        va_list args;
        va_start(args, format);
        int used = vsnprintf(message, sizeof message, format, args);
        va_end(args);
        size_t at = used < 0 ? 0 : (size_t)used;
        if (at < sizeof message)
            snprintf(message + at, sizeof message - at, ": %s", err->message);
        memcpy(err->message, message, sizeof message);
    }
    return -1;
}
