/*
 * Figures of a study: pictures of its points after a published study of power, heat and traffic,
 * with the study's numbers.
 *
 *   4, 8, 13   temperature, power and clock of layouts, optimisations, microbatches
 *   5          bytes that every GPU receives, by link
 *   10, 15     seconds of kernels by category, by layout and by stage
 *   17         temperature and clock of every GPU, and the limits of the clock
 *
 * Each is DIR/figures/figNN.svg with its numbers in figNN.csv; DIR/report.html has them all. They
 * contain no scripts and no external references. Axes come from the data and are the same in all
 * parts of a figure.
 */
#ifndef ERG_REPORT_FIGURES_H
#define ERG_REPORT_FIGURES_H

#include "characterize/collection.h"
#include "characterize/findings.h"

/* The right axis of figures 4, 8 and 13. */
enum erg_figure_right { ERG_RIGHT_EFF_EDP, ERG_RIGHT_TOKENS_PER_J, ERG_RIGHT_J_PER_TOKEN };
extern const char *const erg_figure_right_names[]; /* "eff_edp", …; ends with NULL */

struct erg_figures_input {
    const int *numbers; /* none: those in the study's list, else all with points */
    size_t count;
    enum erg_figure_right right;
    const struct erg_findings *findings; /* for the page; NULL: none */
};

/* Writes the figures that the points fill, and the page. */
int erg_figures_write(const char *folder, const struct erg_collection *collection,
                      const struct erg_figures_input *input, struct erg_error *err);

#endif
