// Argument checks of the layer calls, all before anything runs. Each fills in what it learns of the layer's shape, and
// registers what is read and written.
#pragma once

#include "coda/ops/check.h"
#include "coda/ops/layer.h"

namespace coda::ops {

LayerShape check_layer(Check& check, const BlockPre& args);
LayerShape check_layer(Check& check, const Block& args);
LayerShape check_layer(Check& check, const BlockPost& args);
LayerShape check_layer(Check& check, const BlockPreBackward& args);
LayerShape check_layer(Check& check, const BlockBackward& args);
LayerShape check_layer(Check& check, const BlockPostBackward& args);

}  // namespace coda::ops
