"""Numbers that every coder starts from, fitted once to photographs of many kinds and sizes.

They make small archives small: nothing of this is stored in a file. They are part of the format: changing one
number changes what every existing block means, so they are frozen with it.

| name | meaning |
|---|---|
| WEIGHTS | (kind, phase, slot) how much a magnitude in a slot counts; the last is the prior; 1/1024 |
| EXPECTED | prior magnitude (1/1024) by scale code minus step code, from -EXPECTED_ZERO, in eighth octaves |
| TABLES, FLAG_TABLES | (family, class, token) and (class, flag) frequencies of 2^16 |
| FLAG_WEIGHTS | (kind, feature) how much a feature counts for a zone flag; 1/1024 |
| OFFSETS | (class, magnitude 0..3) by how much reconstruction moves toward zero; 1/256 of a step |
| POSITION | (smaller, larger of i and j, color, phase) factor of the expected magnitude; 1/64 |
| ADJUST | correction of the expected magnitude by its distance from the prior; 1/64 octave |
| LOWEST_WEIGHTS | (color, feature) how much evidence counts for the lowest components; 1/1024 |
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from numpy.typing import NDArray

EXPECTED_ZERO = 80

_SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("WEIGHTS", (6, 2, 38)),
    ("EXPECTED", (256,)),
    ("TABLES", (3, 48, 16)),
    ("FLAG_TABLES", (112, 2)),
    ("FLAG_WEIGHTS", (16, 5)),
    ("OFFSETS", (112, 4)),
    ("POSITION", (8, 8, 2, 2)),
    ("ADJUST", (97,)),
    ("LOWEST_WEIGHTS", (2, 5)),
)

_PACKED = (
    "c-rln2UJwo*2m9n)B7+CQz!!r2n=;#7<$#A2+|}rMC_x_^2CP5e5gVEj3ovYED2F#jJ-S(MTlaHy%1wVQB*_)HHuF|8+msIkbBAZ"
    "EGt>xTJL54vt~HIbM`s+o-=!&b7wD*k$QbHf*=5Y=~W{UlYn03-dQqz9zfdk`tf)HLTr)SDk@&G#oNZIV7%noWo5be=$c6@9n%0U"
    "KyINIa1q1-L3jc^!0jan0&_b?oKp75@N8i;fL(aPNC}4l0}cfMCklrO03U#kvB3S4p%94c4?thtP`yrJx&{Dx=cvw-$%<F8VJHSv"
    "3IJs8y(3jD6d!^CKr&ZJfg!vAb<QDPugBiZaqpWsR&<tp@$rHHvQ@9wbXwg~aqtoyha43?350={{()NoP;_-e)+lQ!00DriS2-dG"
    "KCl4jt;EK~L16HM(Fjc0IVL?^#)g3cph;FtCKoW607SqTg$ejH2z+I-+Beq&$R(~Y3Y3sO)3$4lfr%X@XrIYyalb)Q3l@gAQ2nRV"
    "fHMFv2T&IR3Y!hMYyf|1vVuNTFpOYS23sJucJd6;rH{^8_TBMXid$Ol?pmA7Z(l^NsE^*n`INaKvReOWdW63G(%%aU3%4qCzKKOv"
    "m8U36$FB48T>k~jy3#*uXq2NQaKog-<qKkbvZHRzo5@-}qAtG-dnUF&agH;cUgH_PWR2{Jpdw?TOznSNIk$}GH+sU}Sa`baxU*HG"
    "3Xq1-%S9!poG4d6-r_a(i@xj~%_&)xjz!Wzjhl{ai1qUQzBcaDs4s?%)t@Y&<~vqgytK@j%hu%<gKmAUvqUh$^!lw~kfwX{h6<w7"
    "yV>bS9;yB4<6wx;47qQ%CAEM4DwRR#f$Tpq24bS!6^?lk7=%G^7niU+iMIod4UJ;J1O|IlLX=Q(tR|9<!0?-zSNX%4#14ALL@q|{"
    "X4#}vF7bXFmg;#B(#`X(<#AEM{RQ(2S;QN9=DA&r2V}Q9D88}d5Zd$pc9+K?bcl=ckjV+-^?9CeBksOkD12>Mm<;V6@0-n`A<mRH"
    "?Z}you)oPLV|z#4uWPq2S1{qO1%pqj@1E80u&xo|WwDdI2U*hK&Lu&!obOjnb6}uI$D&bKqe>3`s9`f;6fq8h9_U*=iyv>x!ti*+"
    "E2x?W+RE#T{H<s-41*DfRzGpQg{*aihltIj;W5i{UcKk5Q`?G%xk`8}3`K-gEC$Lr?YSu0T_R-CQOom(GnYKSC$KC?aaRb1Or=xF"
    ";l!y|^#|$;(t?%tf++W`Y5V(ny}G%Qx@B@7Pi1cZzC-pLWbWL(<AB4yX+xr}7!vI7-Qw&$ng#@kHCtvEEnDY6seYEd5Amc0<^@z7"
    "UFcj_*7SqT(3X2kCl0?IuaLSd7$PrC@>n{9`pMjH?e--x*KV5eIcv=T>oP?h)ib_$zq{wskBhhaWm(J$@EQkwb?4sb80M;3si)TG"
    "*w2VB+t`mB-Xrs92$5F|AtB_uk4EBgAG1k(&K@Q4%YV{|?h7$b%1Qn`HJe4UcPZzP_}OC-=>`f?$n6>Pg(TkPDj>Qyv{*;Jp66O6"
    "iFexAlI$CAi&zBrgrX*BNjDgl5p6-_;`#vs;siN;=37z-cdWEuCML4&i~UNB(4qba--}9MbXbZvafZ9w8zYGE)@Rk1gC*2A{tvy3"
    "wVG<p>R$8sag<-Z1oSr@bmH=fQ3@K|RgtiLBs|WV`DRBLGmQ1}La>;Q8<<S0s~Y|LPjeB`VAEa0PaIc0>AhYj;n6VTMc~ruEPag6"
    "Bo8T<%EbGirM|ZlhPNC{bF#LgQ4y3jcHFQOXx@aaDH=NqCKctyU&97{HGP5ej?{QZ3l?2jl<vfv=?tM(+vn@NWfpM@`e!}bRK#$p"
    "vb>O&7GyW`ALR}K0RcIYI>prb?PKEZ$G9C+{ye!cKXiBIdF_scSrvJo_50tr-6aL$BmZ+fru^<PhAzO{_Nw&?PM<HY%V*3va?|bj"
    "0hN>M)_Lro=7y}UD{$Yoaoe05RaRJdJ921K%48AWVeH+OpC?TAyYi*S!&NsIF-bbMfz00>By(O3i^Lf;GP`TZ{D@ADuRDA)Kf%a6"
    "dj^@Kc9D6Tj?9CK$UJAum@!1ItaNc9vicC&{?ubvNJKne4*8PWeUhWaVggs~2^SIVhuYqYuybR+;pp<U2@qjR_<8g48NH-XudcdN"
    "qb`2yZ*=fZCqH!Ivn3)9M?~%P$dHNX>VdticwM_pbo$z*si{5^35|xY9E~>9b)UnebhVp39Y2-nbpD*}Q(onydf0L3Lb36j&KvOH"
    "A<`!}g4@diKgcnkNN7xfY|cl)mP{v%$K)vrW0OzFc7*4MAwERmQ^FHQNqf&ZojBM($l6*AF}!Dg!;4r}zdtR>N5&O0xjy;R%Iy>9"
    "{WdKp&e=^Wwfs!aYq?nb)8lmoNp1=SW;J4L%=v5Bu6%TUzkz{DTlV+t&C7VpLpK(=m(LiSlH#DqSfW-ZA1hTY;FiqG`Y5%gZBfF&"
    "IrjI@Y!2gBY|2g^<yxxN?)>{wehzy}yz2I@ia7emqvJF0+$oM#P5vHw<@t;7>&0}@zy}L1Jy~b5A%6Rm+`(H4&kj$Vz4ArX@uo*p"
    "mra@1OU3<03B@!lzAv3E9^oIcvoLp(Q_3u_fh8Unj%#k`e<aJEmU8MEbgH&j2#Q(PKFU0FZg3W*`s<g4R#BS<0}y!-fb!_xWs{cI"
    "Tgq!+!-F?@R_4uarWQ=-TT-aM>f%&&*{!6n%T>?H@hdIsLym?VP28(1EzYX9oVieTpa1K=SbbsGVF1qfZA~xK58S*lLt0lSy=$|l"
    "-<<iXU*xsNf=l{NU7Wbr=X|egireBx&ezrFq;)>${m%3*^E=aj+x$5<l(ll3yStJFPe-qTU&F7#pC%4GM5Bk(LB5`nslZFuK&77P"
    "ZKu)GP!Ow!L=24{Itm`?A!L>&4osrt@UZ=n8W>(k8x4@T8jS=RP9MmGRyk>CU=dnN1wR~p3a<QS0GD4hgG((2aI&ElTzY8$7caMi"
    "UmBXg>4)v$%)K^nw)&sod`&aBc&`<luWA8TFSmfI+Xhf|p%GNwXau*eHGl`z&p^ZF8u0k%hv4~*N1*BQP0(6Z0}RzyL3?c_K<j@2"
    "*pn*&d-(uRUe*GvsScoRPXT0j0on~spuMdL7+PO}*M?SLXvY7xHiP!p2K?O)fbnfGfR?s4(DE7r&G@1=8`{BNT;aGr$ru=?j_~wV"
    "2Wmq6v?@=v)=R6=dU~n-UEPiCN%2t;eRR>$kzs*B5m6x_QIVnAs0e=_oh~ROyi-9T!M@tS;6QDlk2WB{$0IB>&^vSB=mFsb`S}O>"
    "s<kQ)yj?vYIV;WA&)F-yhcqD(zUfIrLj8PIu1N_&QQ`lG)V^Aeg!n`+Z(m3E@P8v8wX0)7j7}5&7VR2$a+X>X5F8d65gr~E5)|O)"
    "?d9(3;_PT|E0>Bbggg$LNvBaM6bv;!9UI-MrTOLar;qC!8XD>!+`DtD>iU&SmFLf#K5_h5MS1Cuhfkb5dH7Iy#i>izY92MTTPXda"
    "BLc5WtI?EcS~|YLzsL6hL;un4^sYHVgwMaWy0QnbG53R_7)GH`sWcj$!DO*HxVQq5SR%8rb8vR`@bM3h&?WXCGHT+?`ODUAEj@kn"
    "8O27Mmc63%4m)`AcXck=N2ED5$>&n*@_ZW)Z(Q^3S?1W<`8wZ(BJo9IiearO#UQ`vKWu2EqgBBAiHFPcV!X4Xs^`sQem<gZK^gi?"
    "toZ3Hdpf<wBWlTN*<(RPM!r<7x$c;IfNM%I5Wlh4J-)u4+y;MGy8(WC`|lX}W8B(<TTn7LQ{K)^J@_{&nP1V#{DMj5=NvNs$|ZAy"
    "ki1~E5;EViCG#~$@&Z-5k|%iFmpsA!;TVax$I?gxex1S~@rnUl(go&aiBO`!^bv9jk;jivFo<`MmF3JPc1X$e6jBNMT%Q4ID+bzK"
    "5s~5}=itA#x;QAo+lEg!<|{hbtGBm8#HPNfa0_u)h<OZ(X^+MO%USDcXT@jHOcfA-9etJ7VgZLi#Y`2Li;JC1Ea0-}RHFq<b8wVf"
    "i3B`+ug5D;gllalwG{HXY!(Brz)&lRTx=o0&jOtB!vM4I`OMIhd;0sk+JDC%YTttm(A(q7@CW0m1?v$XJ-F!|@zBU3^RpiQ|3pCM"
    "hn8f%Z9|^mbtRcExRd#~KY7AGM3duTb22%gR}Ue_!{U)F(g3q33P?PDiUcEe$jnwyi3X`tT$l*KAa=YrkJuq}guj?hFz_23XwAa9"
    "<G~{((4J504iJ|Zty07^rXxDoK1}T_<<T*u)52Qosgw&@RLtc50FrpSIarH~{@)P~au=nY%#z2Z8!KQ4v$D67ODqLk-2aUcLKj)f"
    "C1R0)iw6V+j}RVTDzOv^`8+%TaQ{aozw^%zW$44=<&W~a#_xF^ynfes?->7g@%E1Mujlofdz?qV^*C={QOE-}GROlyCU4iE&Vu|<"
    "c}qsV;00%t^w@UPi%RNnz@J9qEzu-*1}l@e81agE=@wL?!Tb~}8j)wF%9t43eaTTN4!rK&96*DTorLsG=QZjhovSf*X3X%J+T+7}"
    "Nx1Zm-5sw%LW5mo0u~MHtU$dq&T<joxZT6X8j9LoArtXfbc!jZ4KbaSHuwh5Wtk2H1m@Y<$}ENW2G63?jQhWpTrRd0nD&3%0z>Vr"
    "B)Io;@%`WQV*qn~4dv#xqPe+khyiXxTG1wID{A~~!G5E?WEfwK?B|?k+y;v}$vt_k?5=gS{TbgA+Jh0LefGs{NiQ7x+0>c&V~Ub?"
    "g;%&<w!SNPLVty|pslb0dfoNHo$fteumNr5KULfsRy?dY_fJ#T13GN{3w1uPL*x(Q<NVt{i~-c%{{Qv{Z+X9O-wy7=zkG_otoK*@"
    "2MTls+I#(YHp{FJ&M<W37&?*+9a)CXBm<Yn7yhX!2J?!WWtLfHnPrw)W|{Q?znjb{0<+91f`5}DFw3m}f)oScpKr{IXO>xJnPrw)"
    "W|?J{IYnTWS${Z1@GsH#APN"
)


def _unpack() -> dict[str, NDArray[np.float64]]:
    planes = np.frombuffer(zlib.decompress(base64.b85decode(_PACKED)), np.uint8).reshape(4, -1)
    flat = np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.float64)
    found, at = {}, 0
    for name, shape in _SHAPES:
        size = int(np.prod(shape))
        found[name] = flat[at : at + size].reshape(shape)
        at += size
    return found


_FOUND = _unpack()
WEIGHTS = _FOUND["WEIGHTS"]
EXPECTED = _FOUND["EXPECTED"]
TABLES = _FOUND["TABLES"]
FLAG_TABLES = _FOUND["FLAG_TABLES"]
FLAG_WEIGHTS = _FOUND["FLAG_WEIGHTS"]
OFFSETS = _FOUND["OFFSETS"]
POSITION = _FOUND["POSITION"]
ADJUST = _FOUND["ADJUST"]
LOWEST_WEIGHTS = _FOUND["LOWEST_WEIGHTS"]
