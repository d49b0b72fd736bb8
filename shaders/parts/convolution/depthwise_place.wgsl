// Which four neighbours job `job` of a depthwise convolution makes: of row `oh` of output channel `m`, from column `first` on.
  let line = job / params.output.w;
  let first = (job - line * params.output.w) * 4u;
  let map = line / params.output.x;
  let oh = line - map * params.output.x;
  let image = map / params.output.z;
  let m = map - image * params.output.z;
  let plane = (image * params.input.z + m / params.multiplier) * params.input.x;
