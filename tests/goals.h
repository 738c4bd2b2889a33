/* The goals that tests ask for most, by their bound. */
#ifndef ERGON_TEST_GOALS_H
#define ERGON_TEST_GOALS_H

#include "frontier/goal.h"

#define FASTEST ((struct erg_goal){.objective = ERG_FASTEST})
#define LEAST_ENERGY ((struct erg_goal){.objective = ERG_LEAST_ENERGY})
#define KNEE ((struct erg_goal){.objective = ERG_KNEE})
#define DEADLINE(bound) ((struct erg_goal){.objective = ERG_LEAST_ENERGY, .deadline_s = bound})
#define BUDGET(bound) ((struct erg_goal){.objective = ERG_FASTEST, .energy_j = bound})
#define STRAGGLER(bound) ((struct erg_goal){.objective = ERG_LEAST_ENERGY, .straggler_s = bound})

#endif
