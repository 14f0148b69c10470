// The parts of reading and writing MSCCL XML: the XML itself, thread blocks as lanes, and steps that work in place.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/plan/text.h"

namespace lockstep::plan {

// The XML of files of plans: elements in elements, with attributes, and comments. Text between elements, DOCTYPE, CDATA
// and processing instructions are refused, so that no file can refer to another or grow while it is read.

struct XmlElement {
  std::string name;
  int line = 0;  // where its '<' stands, from 1 on
  std::map<std::string, std::string, std::less<>> attributes;
  std::vector<XmlElement> children;
};

// The document's one element. Throws a usage Error of one line that names `source`, line and column, the text found and
// the text allowed.
XmlElement parse_xml(std::string_view text, std::string_view source);

// The attributes of one element, with refusals that name the file, the line and what is allowed.
class XmlAttributes {
 public:
  // Refuses an element with another name than `name`, and attributes other than `known`.
  XmlAttributes(const XmlElement& element, std::string_view source, std::string_view name,
                std::initializer_list<std::string_view> known);

  int line() const { return element_.line; }
  const std::string* find(std::string_view name) const;  // nullptr: absent
  int integer(std::string_view name, int least, int most) const;
  int integer_or(int if_absent, std::string_view name, int least, int most) const;
  std::int64_t long_integer_or(std::int64_t if_absent, std::string_view name, std::int64_t least,
                               std::int64_t most) const;

  // The entry of `table` whose name, by `name_of`, is the attribute's value.
  template <typename Table, typename NameOf>
  const auto& entry(std::string_view name, const Table& table, const NameOf& name_of) const {
    const std::string* const value = find(name);
    std::string allowed;
    for (const auto& row : table) {
      if (value != nullptr && name_of(row) == *value) return row;
      allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(row));
    }
    fail(name, allowed);
  }

  // Throws the refusal of the attribute's value, or of its absence.
  [[noreturn]] void fail(std::string_view name, const std::string& allowed) const;

 private:
  const XmlElement& element_;  // outlives this object
  std::string_view source_;
};

// The value with the characters that XML reserves written as entities, for use between double quotes.
std::string xml_escaped(std::string_view value);

// Up to 40 printable characters of what was found in a file, for one line of a message.
std::string shown_in_message(std::string_view found);

// Plans in the form that MSCCL runs: thread blocks in place of lanes.
//
// A thread block receives from at most one rank and sends to at most one, on one channel, and is the only one of its
// rank that uses that end of that connection: (from, to, channel) is a first-in first-out channel, whatever the numbers
// of the two thread blocks. A lane of a Plan may have any number of peers. So all thread blocks of a channel become one
// lane, and a lane becomes as many thread blocks as its peers need.

struct ThreadBlock {
  int send_to = -1;  // ranks; -1: none
  int recv_from = -1;
  int channel = 0;
};

struct ThreadBlocks {
  Plan plan;                                     // its lanes are the thread blocks; `after` names thread blocks
  std::vector<std::vector<ThreadBlock>> blocks;  // [rank][lane of plan]
  StepLines lines;                               // [rank][lane][step] of the file; not in what split_lanes() returns
  // Input and output may be separate memory, or the same as collectives::in_place_alias() defines. If they are always
  // the same, steps may write to the input.
  bool out_of_place = true;
  bool in_place = false;
};

// The same algorithm with one lane per channel, for input and output that are separate or the same. Steps stand in an
// order in which thread blocks that take turns can run them, and keep the waits for other lanes that the order of the
// lane does not imply. If the thread blocks work in place only, a chunk is read from the input until it is first
// written, then from where the write went: the output, or scratch if the input has no place in the output.
// Throws a usage Error that names `source` and the line if a step leaves its buffers, accesses of two thread blocks
// race, or a step waits forever. Fills `lines`, if given.
Plan join_channels(const ThreadBlocks& from, std::string_view source, StepLines* lines = nullptr);

// Thread blocks for a plan that has passed the checker. Each lane is a channel. Steps of a lane stay in order within a
// thread block; between thread blocks only steps that access the same memory, at least one writing, do: the rest may
// run side by side.
ThreadBlocks split_lanes(const Plan& plan);

// Turns steps that work in place, and so may write to the input, into steps of a Plan, whose input is never written.

// Names for one rank's memory of input and output that are the same. A chunk is read from the input until a step writes
// it. What is written goes to the output, if each chunk of the input has a place there (as in all-reduce), and else to
// a copy of the input's layout in scratch (as in reduce-scatter). Steps come in an order in which they can run.
class InPlaceNames {
 public:
  InPlaceNames(const Plan& plan, int rank);

  // Renames the step's slices. Returns copies that must stand in front of it in its lane, where `at_end` is the first
  // one's place. They bring together what the step reads, if only part of it was written, or what it adds to, if that
  // was not written yet.
  std::vector<Step> rename(Step& step, After at_end);

  // Copies to the output of what belongs there and is elsewhere, to be done after all steps.
  std::vector<Step> finish() const;

  // Scratch of the plan with what the names take.
  int scratch_chunks() const { return scratch_chunks_; }

 private:
  struct Chunk {
    bool moved = false;            // was written, or copied, to its new place
    After copied_by;               // lane -1: no copy
    std::vector<After> read_from;  // steps that read it from the input
  };

  bool is_renamed(const Slice& slice) const { return slice.buffer != Buffer::scratch; }
  int first_of(const Slice& slice) const {
    return slice.first + (slice.buffer == Buffer::input ? input_begin_ : output_begin_);
  }
  Slice from_input(int chunk, int count) const { return input(chunk - input_begin_, count); }
  Slice moved_to(int chunk, int count) const {
    return to_output_ ? output(chunk, count) : scratch(scratch_begin_ + chunk, count);
  }
  bool is_in_input(int chunk) const;
  void read(Step& step, After at_end, std::vector<Step>& copies);
  void move(const Slice& slice, After at_end, std::vector<Step>& copies);
  void write(Step& step);

  int inputs_;
  int outputs_;
  bool to_output_ = true;  // each chunk of the input has a place in the output
  int input_begin_ = 0;    // index in chunks_ of the input's chunk 0
  int output_begin_ = 0;   // likewise
  int scratch_begin_;      // slot of chunk 0, unless to_output_
  int scratch_chunks_;
  std::vector<Chunk> chunks_;  // in the order of the output if to_output_, else of the input
};

}  // namespace lockstep::plan
