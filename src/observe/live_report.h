/*
 * The live state as a plain table and as JSON, for scripts.
 */
#ifndef ERG_OBSERVE_LIVE_REPORT_H
#define ERG_OBSERVE_LIVE_REPORT_H

#include "base/text.h"
#include "observe/live.h"

#include <jansson.h>

/* Adds a heading and a line per GPU. */
void erg_live_table(struct erg_text *out, const struct erg_live_view *view);

/* A new document with every metric of every GPU, null where it is not known. */
json_t *erg_live_json(const struct erg_live_view *view);

#endif
