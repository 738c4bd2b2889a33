/* The artifact's versions of policies; policies.c lists them. */
#ifndef ERG_RESEARCH_POLICIES_H
#define ERG_RESEARCH_POLICIES_H

#include "cluster/schedule/policy.h"

extern const struct erg_policy artifact_gavel, artifact_sia;

#endif
