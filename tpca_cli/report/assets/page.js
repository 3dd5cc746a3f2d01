"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data.images.length) return;
  const at = (id) => document.getElementById(id);
  const before = at("before"), after = at("after"), line = at("line"), stage = at("stage");
  const components = at("components"), divider = at("divider");
  let current = 0;

  const quality = (step) =>
    step.psnr === null ? "" : step.psnr === "exact" ? ", identical" : `, ${step.psnr.toFixed(2)} dB`;

  function show() {
    const image = data.images[current];
    const step = image.steps[Number(components.value)];
    const split = Number(divider.value);
    const words = `${step.components} of ${image.most}`;
    before.src = image.reference;
    after.src = step.uri;
    before.alt = `${image.name}: ${data.reference}`;
    after.alt = `${image.name}: ${words} components`;
    after.style.clipPath = `inset(0 0 0 ${split}%)`;
    line.style.left = `${split}%`;
    at("right-side").textContent = `M = ${step.components}`;
    at("components-value").textContent = words;
    components.setAttribute("aria-valuetext", `${words} components${quality(step)}`);
    at("divider-value").textContent = `${split} %`;
    at("status").textContent = `${image.name}: M = ${words}${quality(step)}`;
  }

  function choose(index) {
    current = index;
    const last = data.images[index].steps.length - 1;
    const share = components.max > 0 ? components.value / components.max : 1;
    components.max = last;
    components.value = Math.round(share * last);
    show();
  }

  data.images.forEach((image, index) => {
    const label = document.createElement("label");
    label.className = "thumb";
    const radio = document.createElement("input");
    radio.type = "radio";
    radio.name = "picture";
    radio.checked = index === 0;
    radio.addEventListener("change", () => choose(index));
    const picture = document.createElement("img");
    picture.src = image.reference;
    picture.alt = "";
    const name = document.createElement("span");
    name.textContent = image.name;
    label.append(radio, picture, name);
    at("pictures").append(label);
  });

  function drag(event) {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = stage.getBoundingClientRect();
    divider.value = Math.round((100 * (event.clientX - box.left)) / box.width);
    show();
  }
  stage.addEventListener("pointerdown", drag);
  stage.addEventListener("pointermove", drag);
  components.addEventListener("input", show);
  divider.addEventListener("input", show);
  before.draggable = after.draggable = false;
  components.max = data.images[0].steps.length - 1;
  components.value = Math.floor(components.max / 2);
  choose(0);
})();
