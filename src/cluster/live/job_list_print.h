/* Live jobs for people, as a table, or as a document. */
#ifndef ERG_CLUSTER_LIVE_JOB_LIST_PRINT_H
#define ERG_CLUSTER_LIVE_JOB_LIST_PRINT_H

#include "cluster/live/job_list.h"

#include <stdio.h>

void erg_live_list_print(FILE *out, const struct erg_live_list *list);
void erg_live_list_print_json(FILE *out, const struct erg_live_list *list);

#endif
