/*
 * The page of a controller: its status, for browsers and for Prometheus. Read-only.
 *
 *   /             the page, which updates itself
 *   /status.json  the newest status (cluster/live/controller.h)
 *   /metrics      OpenMetrics, or the older text format, as a client accepts
 */
#ifndef ERG_SERVE_SCHEDULE_PAGE_H
#define ERG_SERVE_SCHEDULE_PAGE_H

#include "ergon/error.h"

#include <jansson.h>

#define ERG_SCHEDULE_PAGE_LISTEN "127.0.0.1:9474"

struct erg_schedule_page;

/* Starts to answer at "ADDRESS:PORT"; NULL: at ERG_SCHEDULE_PAGE_LISTEN. Warns if other machines
 * can reach that address. */
int erg_schedule_page_open(struct erg_schedule_page **page, const char *listen,
                           struct erg_error *err);

/* "http://127.0.0.1:9474/" */
const char *erg_schedule_page_url(const struct erg_schedule_page *page);

/* Sets the status to show; keeps a copy. */
void erg_schedule_page_update(struct erg_schedule_page *page, const json_t *status);

void erg_schedule_page_close(struct erg_schedule_page *page);

#endif
