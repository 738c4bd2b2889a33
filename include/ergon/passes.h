/*
 * Passes: the two directions in which a microbatch passes through a stage of a pipeline.
 */
#ifndef ERGON_PASSES_H
#define ERGON_PASSES_H

enum erg_direction { ERG_FORWARD = 0, ERG_BACKWARD = 1 };

#endif
