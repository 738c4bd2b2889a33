/*
 * The audit log: lines of JSON about leases and their holders, written by a thread of its own, so
 * that a slow disk causes no delay. Lines beyond the queue's length or rate are dropped; the next
 * line gives their number ("lost").
 */
#ifndef ERG_DAEMON_AUDIT_H
#define ERG_DAEMON_AUDIT_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_daemon_audit;

/* Appends to the file, which is created with mode 0640. `path` NULL: lines are discarded. */
int erg_daemon_audit_open(struct erg_daemon_audit **audit, const char *path, struct erg_error *err);

/* Reopens the file by this name: after it was renamed, or if the rules name another file. */
void erg_daemon_audit_reopen(struct erg_daemon_audit *audit, const char *path);

/* A line: {"time":"…","event":"EVENT" and the text of `format`, which begins with a comma}. */
void erg_daemon_audit_line(struct erg_daemon_audit *audit, const char *event, const char *format,
                           ...) ERG_PRINTF(3, 4);

/* Whether a line may be written at its pace of 20 per second; if not, it counts as lost. */
bool erg_daemon_audit_may(struct erg_daemon_audit *audit, int64_t *pace_ns);

/* Writes the remaining lines, and ends. */
void erg_daemon_audit_close(struct erg_daemon_audit *audit);

#endif
