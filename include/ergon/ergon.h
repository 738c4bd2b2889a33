/*
 * All public headers of libergon, and its version. The build takes its version from here.
 */
#ifndef ERGON_ERGON_H
#define ERGON_ERGON_H

#include "ergon/ask.h"
#include "ergon/characterize.h"
#include "ergon/error.h"
#include "ergon/frontier.h"
#include "ergon/hook.h"
#include "ergon/job.h"
#include "ergon/kernels.h"
#include "ergon/launch.h"
#include "ergon/layout.h"
#include "ergon/memory.h"
#include "ergon/model.h"
#include "ergon/optimize.h"
#include "ergon/plan.h"
#include "ergon/simulate.h"
#include "ergon/telemetry.h"
#include "ergon/train.h"
#include "ergon/tune.h"
#include "ergon/watch.h"

#define ERG_VERSION "0.2.0"
#define ERG_VERSION_MAJOR 0
#define ERG_VERSION_MINOR 2
#define ERG_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* libergon exports what its public headers declare */
#endif

/* The version of the library that runs, which may differ from the ERG_VERSION compiled against. */
const char *erg_version(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
