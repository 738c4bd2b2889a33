/* Shared by the files of the doctor. Private to the room. */
#ifndef ERG_OBSERVE_DOCTOR_INTERNAL_H
#define ERG_OBSERVE_DOCTOR_INTERNAL_H

#include "observe/doctor.h"

/* Adds a finding; the fact is formatted, the advice a literal or NULL. */
void erg_doctor_note(struct erg_doctor *doctor, enum erg_finding_state state, int gpu,
                     const char *subject, const char *advice, const char *fact, ...)
    __attribute__((format(printf, 6, 7)));

/* Opens the GPUs, watches them and records their properties. */
void erg_doctor_gpus(struct erg_doctor *doctor, const char *select, double watch_s);

/* CUDA's libraries, as the CUDA device opens them. */
void erg_doctor_libraries(struct erg_doctor *doctor);

/* Slurm's configuration; nothing if Slurm is not installed. */
void erg_doctor_slurm(struct erg_doctor *doctor);

#endif
