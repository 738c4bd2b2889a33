/* The artifact's versions of policies; policies.c lists them. */
#ifndef ERG_RESEARCH_POLICIES_H
#define ERG_RESEARCH_POLICIES_H

#include "cluster/schedule/policy.h"

#define ARTIFACT_CALLED (ERG_EVENT_ARRIVAL | ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR)

extern const struct erg_policy artifact_gavel, artifact_sia;

#endif
