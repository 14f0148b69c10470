// Closed forms of the catalogue, with messages that take no time. Each returns no value where it is not exact.
#pragma once

#include <optional>

#include "schedules/generators/catalogue.h"

namespace lockstep::schedules {

std::optional<ClosedForm> fill_and_drain(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_slices_filled_and_drained(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_seq1f1b(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_seq1f1b_i(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_chunks_in_groups(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_breadth_first(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_zb_h1(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_interleaved_zb(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_zb_h2(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_zb_v(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_dualpipe(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_dualpipe_v(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_chimera(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_chimera_doubled(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> of_naive(const PipelineShape& shape, const Times& times);
std::optional<ClosedForm> none_known(const PipelineShape& shape, const Times& times);

}  // namespace lockstep::schedules
