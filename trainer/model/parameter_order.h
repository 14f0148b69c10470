// Where parameters_of() puts the parameters of a part, counted from the part's first.
#pragma once

#include <cstddef>

namespace lockstep::trainer {

// A weight and the bias behind it, of linear layers and norms alike, are named by the weight.
inline constexpr std::size_t kNorm1 = 0;
inline constexpr std::size_t kQkv = 2;
inline constexpr std::size_t kProjection = 4;
inline constexpr std::size_t kNorm2 = 6;
inline constexpr std::size_t kUp = 8;
inline constexpr std::size_t kDown = 10;
inline constexpr std::size_t kLayerParameters = 12;

inline constexpr std::size_t kWords = 0;
inline constexpr std::size_t kPositions = 1;
inline constexpr std::size_t kEmbeddingParameters = 2;

inline constexpr std::size_t kFinalNorm = 0;
inline constexpr std::size_t kOwnWords = 2;  // of a head without the embedding beside it

}  // namespace lockstep::trainer
