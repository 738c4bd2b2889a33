/*
 * Shared by the files of figures only: a figure in the making, and its SVG.
 *
 * A figure is a list of parts, small pictures with axes of their own. The file has them in rows as
 * wide as a screen; the page puts as many next to each other as fit, so that on a telephone they
 * are below each other.
 */
#ifndef ERG_REPORT_FIGURES_INTERNAL_H
#define ERG_REPORT_FIGURES_INTERNAL_H

#include "base/memory.h"
#include "base/text.h"
#include "report/figures/figures.h"

struct figure_part {
    struct erg_text body; /* SVG elements */
    double width, height; /* pixels */
    bool begins_row;
};

struct figure {
    int number;
    const char *title, *caption;
    struct figure_part *parts;
    size_t count, capacity;
    struct erg_text csv;
    struct erg_arena arena;
};

/* A new part, empty. */
struct figure_part *erg_figure_part(struct figure *figure, double width, double height);
void erg_figure_release(struct figure *figure);

/* ---- which marks a figure shows ---- */

/* Borrowed from the collection, in the order in which they are drawn: by model as in the study,
 * fully sharded layouts first, then by depth of the pipeline. */
struct figure_marks {
    const struct erg_collected **items;
    size_t count, capacity;
};

enum figure_axis {
    FIGURE_ONE_EACH = 0,      /* one optimisation, one microbatch */
    FIGURE_OPTIMISATIONS = 1, /* all of them */
    FIGURE_MICROBATCHES = 2,  /* all of them */
};

/* Those of one optimisation and the smallest microbatch, or of all. `wanted`: the optimisation, if
 * the study has it; else its first. */
void erg_figure_choose(struct figure_marks *marks, const struct erg_collection *collection,
                       unsigned axes, const char *wanted);
bool erg_figure_has_optimisation(const struct erg_collection *collection, const char *name);

/* The end of the run of marks of the model, or of the layout of that model, of marks[first]. */
size_t erg_figure_model_end(const struct figure_marks *marks, size_t first);
size_t erg_figure_layout_end(const struct figure_marks *marks, size_t first);

/* Pixels that the longest variant takes in the type of ticks; 0: all are usual. */
double erg_figure_variant_width(const struct figure_marks *marks);

bool erg_figure_is_ok(const struct erg_collected *mark);
/* "OOM", "n/a", "failed", "not run": drawn where there is no result. */
const char *erg_figure_lack(const struct erg_collected *mark);

/* "gpt3-175b TP2 PP16, 1 sequence, cc": for titles. */
void erg_figure_describe(struct erg_text *out, const struct erg_collected *mark);

/* The columns that every table begins with, and those of a mark. */
void erg_figure_csv_head(struct figure *figure, const char *columns);
void erg_figure_csv_mark(struct figure *figure, const struct erg_collected *mark);

/* ---- SVG ---- */

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

void erg_svg_escape(struct erg_text *out, const char *text);
/* A line of text; `style`: a class, NULL: none. */
void erg_svg_label(struct erg_text *out, double x, double y, enum svg_anchor anchor,
                   const char *style, const char *text);
/* The same from bottom to top. */
void erg_svg_label_up(struct erg_text *out, double x, double y, enum svg_anchor anchor,
                      const char *style, const char *text);
void erg_svg_line(struct erg_text *out, double x1, double y1, double x2, double y2,
                  const char *style);
/* Begins an element's title, which is shown when a pointer rests on it; the text is escaped. */
void erg_svg_title(struct erg_text *out, const char *text);
/* A rectangle with a title. `fill`: a colour, NULL: that of its class. */
void erg_svg_box(struct erg_text *out, double x, double y, double width, double height,
                 const char *style, const char *fill, const char *title);
/* A number with few digits: "0.25", "1300", "1.3M". */
const char *erg_svg_number(char *out, size_t size, double value);

/* From values to pixels: from `low` at `from` to `high` at `to`. */
struct svg_scale {
    double low, high, from, to, step;
};

/* Bounds at round numbers around all values; `count` values that are NaN are left out. */
void erg_svg_scale_fit(struct svg_scale *scale, double least, double most, bool from_zero);
double erg_svg_at(const struct svg_scale *scale, double value);
/* Ticks with numbers on the left or right of an axis at x, and lines to `to_x`. */
void erg_svg_axis(struct erg_text *out, const struct svg_scale *scale, double x, double to_x,
                  bool right);

/* Grey, with the word for the missing result; its sentence is the title. */
void erg_svg_lack(struct erg_text *out, double x, double y, double width, double height,
                  const struct erg_collected *mark, bool upright);

/* A colour of a map for a share from 0 to 1; "#rrggbb". */
enum svg_map { SVG_HEAT, SVG_GREEN, SVG_BLUE, SVG_VIOLET };
void erg_svg_map_colour(char out[8], enum svg_map map, double share);

/* ---- the figures ---- */

/* Whether the points fill it; then all of the figure is made. */
bool erg_figure_panels(struct figure *figure, const struct erg_collection *collection,
                       enum erg_figure_right right);
bool erg_figure_maps(struct figure *figure, const struct erg_collection *collection);
bool erg_figure_bars(struct figure *figure, const struct erg_collection *collection);

/* The file. */
void erg_figure_svg(struct erg_text *out, const struct figure *figure);
/* The page of all. */
void erg_figure_page(struct erg_text *out, const struct figure *figures, size_t count,
                     const struct erg_collection *collection, const struct erg_findings *findings);

#endif
