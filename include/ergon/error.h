/*
 * Errors: how every fallible function of ergon tells its caller what went wrong.
 *
 * A fallible function returns 0 on success and -1 on failure, and takes a last
 * `struct erg_error *`. On failure that holds a status and one full sentence: what was
 * being done, to what, what is wrong and what would be right. On success it is left
 * untouched, so calls can be chained with `||`. NULL is accepted where nobody will read it.
 */
#ifndef ERGON_ERROR_H
#define ERGON_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The values are the exit codes of the command line. */
enum erg_status {
    ERG_OK = 0,
    ERG_FAILED = 1, /* bad input, I/O, a broken store, … */
    ERG_USAGE = 2,  /* wrong command line */
    ERG_INFEASIBLE =
        3,             /* nothing satisfies the constraints; the message names the one that binds */
    ERG_NO_DEVICE = 4, /* the device asked for is missing or refuses */
    ERG_RESUMABLE = 85,  /* stopped by a signal, with a checkpoint to go on from */
    ERG_SUPERSEDED = 86, /* a newer incarnation of the same job has begun */
    ERG_INTERRUPTED = 130,
};

struct erg_error { /* never grows: nobody sets it up before a call */
    enum erg_status status;
    char message[1024];
};

#if defined(__GNUC__)
#define ERG_PRINTF(format_index, first_index)                                                      \
    __attribute__((format(printf, format_index, first_index)))
#else
#define ERG_PRINTF(format_index, first_index)
#endif

/* Fills *err (when err is not NULL) and returns -1, so that `return erg_fail(…)` reads well. */
int erg_fail(struct erg_error *err, enum erg_status status, const char *format, ...)
    ERG_PRINTF(3, 4);

/* Prepends "context: " to the message of a failure that climbs, and returns -1. */
int erg_fail_context(struct erg_error *err, const char *format, ...) ERG_PRINTF(2, 3);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
