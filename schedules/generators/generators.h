// Pipeline schedules as pure functions of integers: p ranks, m microbatches, v chunks a rank. The catalogue
// (schedules/catalogue.h) has their sources, demands and closed forms; shapes that it refuses must not be given here.
#pragma once

#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

Schedule naive(const PipelineShape& shape);
Schedule gpipe(const PipelineShape& shape);
Schedule one_f_one_b(const PipelineShape& shape);
// 1F1B as a stream without an end, of which m microbatches are shown: no flush, and old weights (see the catalogue).
Schedule pipedream(const PipelineShape& shape);
Schedule pipedream_2bw(const PipelineShape& shape);
Schedule eager_1f1b(const PipelineShape& shape);
Schedule interleaved(const PipelineShape& shape);
Schedule breadth_first(const PipelineShape& shape);
Schedule zb_h1(const PipelineShape& shape);
Schedule interleaved_zb(const PipelineShape& shape);
Schedule zb_h2(const PipelineShape& shape);
Schedule zb_v(const PipelineShape& shape);
Schedule v_half(const PipelineShape& shape);
Schedule v_min(const PipelineShape& shape);
// Without the better order of warm-up and cool-down: the repeated block alone. Not in the catalogue.
Schedule v_half_block(const PipelineShape& shape);
Schedule v_min_block(const PipelineShape& shape);
Schedule dualpipe(const PipelineShape& shape);
Schedule dualpipe_v(const PipelineShape& shape);
Schedule hanayo(const PipelineShape& shape);
Schedule chimera(const PipelineShape& shape);
Schedule chimera_doubled(const PipelineShape& shape);

}  // namespace lockstep::schedules
