/*
 * Whether a verification is one (optimize/verify.h).
 */
#include "optimize/verify.h"

#include <math.h>

static const double cost_tolerance = 0.03;
/* bf16 products are summed in another order, and each layer passes the difference on to the
 * next. */
static const double tensor_tolerance = 0.03;

static int judge_tensors(const struct erg_verify_comparison *comparison, struct erg_error *err)
{
    for (size_t i = 0; i < comparison->count; i++)
        if (!(comparison->tensors[i].relative <= tensor_tolerance))
            return erg_fail(err, ERG_FAILED,
                            "verifying a plan: the %s tensor of %s is %.2g from that of %s, "
                            "relative to its size; expected at most %g",
                            comparison->tensors[i].tensor, comparison->way,
                            comparison->tensors[i].relative, comparison->reference,
                            tensor_tolerance);
    return 0;
}

int erg_verify_judge(const struct erg_verification *verification, struct erg_error *err)
{
    for (size_t i = 0; i < verification->comparison_count; i++)
        if (judge_tensors(&verification->comparisons[i], err))
            return -1;
    const struct erg_verify_row *worst = NULL;
    double worst_by = cost_tolerance, time_by = 0, energy_by = 0;
    for (size_t i = 0; i < verification->row_count; i++) {
        const struct erg_verify_row *row = &verification->rows[i];
        double time = row->stack.time_s / row->composed.time_s - 1;
        double energy = row->stack.energy_j / row->composed.energy_j - 1;
        if (fmax(fabs(time), fabs(energy)) > worst_by) {
            worst_by = fmax(fabs(time), fabs(energy));
            worst = row;
            time_by = time;
            energy_by = energy;
        }
    }
    if (!worst)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "verifying a plan: %s %s takes %+.1f %% of time and %+.1f %% of energy beyond "
                    "what its pieces add up to, expected at most %g %%",
                    erg_verify_way_name(worst->way), worst->backward ? "backward" : "forward",
                    100 * time_by, 100 * energy_by, 100 * cost_tolerance);
}
