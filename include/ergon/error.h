/*
 * Errors: how every fallible function of ergon reports a failure.
 *
 * A fallible function returns 0 on success and -1 on failure, and takes a last
 * `struct erg_error *`. On failure it holds a status and one full sentence: the action and
 * its object, the problem and what was expected. On success it stays unchanged, so calls can
 * be chained with `||`. NULL is accepted.
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
    ERG_FAILED = 1,      /* bad input, I/O, a broken store, … */
    ERG_USAGE = 2,       /* wrong command line */
    ERG_INFEASIBLE = 3,  /* nothing satisfies the constraints; the message names the binding one */
    ERG_NO_DEVICE = 4,   /* the requested device is missing or refuses */
    ERG_RESUMABLE = 85,  /* stopped by a signal, with a checkpoint to resume */
    ERG_SUPERSEDED = 86, /* a newer incarnation of the same job has begun */
    ERG_INTERRUPTED = 130,
};

struct erg_error { /* never grows: it needs no initialisation before a call */
    enum erg_status status;
    char message[1024];
};

#if defined(__GNUC__)
#define ERG_PRINTF(format_index, first_index)                                                      \
    __attribute__((format(printf, format_index, first_index)))
#else
#define ERG_PRINTF(format_index, first_index)
#endif

/* Fills *err (if err is not NULL) and returns -1: use it as `return erg_fail(…)`. */
int erg_fail(struct erg_error *err, enum erg_status status, const char *format, ...)
    ERG_PRINTF(3, 4);

/* Prepends "context: " to the message of a failure that is passed on, and returns -1. */
int erg_fail_context(struct erg_error *err, const char *format, ...) ERG_PRINTF(2, 3);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
