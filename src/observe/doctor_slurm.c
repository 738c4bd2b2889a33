/* Checks Slurm, if it is installed: missing settings for live jobs. */
#include "observe/doctor_internal.h"

#include "cluster/live/slurm_advice.h"
#include "cluster/live/slurm_command.h"

void erg_doctor_slurm(struct erg_doctor *doctor)
{
    struct erg_slurm_setting settings[ERG_SLURM_SETTINGS];
    struct erg_error err;
    enum erg_engine_answer answer = erg_slurm_advice(NULL, settings, &err);
    if (answer == ERG_ENGINE_BROKEN && err.status == (enum erg_status)ERG_SLURM_MISSING)
        return;
    if (answer != ERG_ENGINE_DONE) {
        erg_doctor_note(
            doctor, ERG_FINDING_MISSING, -1, "Slurm",
            "Jobs run without it; to schedule them live, run this where Slurm's commands work.",
            "%s", err.message);
        return;
    }
    for (int i = 0; i < ERG_SLURM_SETTINGS; i++)
        erg_doctor_note(doctor, settings[i].fine ? ERG_FINDING_OK : ERG_FINDING_LIMITED, -1,
                        "Slurm", settings[i].advice, "%s", settings[i].fact);
}
